import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.regex.*;

/** For every line of a file of filters: the filter, a tab, and the matched names by number, or "refused".
 *  java Matches.java filters.txt names.txt > matches.tsv */
public class Matches {
    public static void main(String[] args) throws IOException {
        List<String> names = Files.readAllLines(Paths.get(args[1]), StandardCharsets.UTF_8);
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String filter : Files.readAllLines(Paths.get(args[0]), StandardCharsets.UTF_8)) {
            StringBuilder matched = new StringBuilder();
            try {
                Pattern.compile(filter);
                for (int i = 0; i < names.size(); i++)
                    if (names.get(i).matches(filter))
                        matched.append(matched.length() == 0 ? "" : " ").append(i);
            } catch (PatternSyntaxException e) {
                matched.append("refused");
            }
            out.println(filter + "\t" + matched);
        }
        out.flush();
    }
}
